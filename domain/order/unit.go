package order

// MinorPerUnit returns how many minor units make one unit of a currency, such as 100 for
// EUR and 1 for JPY. known is false for what is not an active ISO 4217 code with a minor unit.
func MinorPerUnit(currency string) (minor int64, known bool) {
	digits, known := minorDigits(currency)
	if !known {
		return 0, false
	}
	minor = 1
	for range digits {
		minor *= 10
	}
	return minor, true
}
