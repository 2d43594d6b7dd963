package schemas

// Limit is something that decides about an event and that no JSON Schema can say.
type Limit struct {
	Name string // short and stable
	Text string
}

// Limits lists what a validator with these schemas cannot find; projection/schemacheck finds it.
func Limits() []Limit {
	return []Limit{
		{"text", "The text itself: twice the same name in an object, a byte order mark, invalid UTF-8, anything behind the value."},
		{"integer", "`version` and `quantity` are written as integers: `2.0` and `2e0` are refused, and validators take them for integers."},
		{"bytes", "Lengths are in bytes of UTF-8; JSON Schema counts characters."},
		{"money", "An amount is a whole number of the currency's minor units (`\"19.999\"` EUR and `\"1.5\"` JPY are not), and fits into 64 bits of them; the currency is an active ISO 4217 code that has a minor unit."},
		{"total", "The lines of OrderCreated.v2 are in one currency, and their sum fits into 64 bits of minor units."},
		{"time", "The day exists, and the time is in the years 1970 to 9999 in UTC."},
		{"key", "The record's key is the order ID, or null."},
		{"order", "What depends on the order: whether the version is its next one, whether its state allows the event, and whether the amounts fit."},
	}
}
