package generate

import (
	"strconv"
	"time"
)

// style is how an event is written. Every style of one event means the same.
type style struct {
	rotate  int  // the member that comes first
	spaces  bool // white space between tokens
	numbers bool // numbers in another spelling
	zone    int  // offset of the time's zone, in minutes
	bare    bool // no ".v1" behind the type
	escapes bool // \u escapes
}

// appendEvent writes an event as JSON.
func appendEvent(to []byte, e *event, s style) []byte {
	sep, colon := ",", ":"
	if s.spaces {
		sep, colon = " ,\n  ", " : "
	}
	to = append(to, '{')
	for i := range 6 {
		if i > 0 {
			to = append(to, sep...)
		}
		switch (i + s.rotate) % 6 {
		case 0:
			to = append(appendName(to, "event_id", colon), '"')
			to = append(append(to, e.id[:]...), '"')
		case 1:
			to = appendName(to, "order_id", colon)
			if s.escapes && e.orderID[0] == 'o' {
				to = append(append(append(to, `"\u006f`...), e.orderID[1:]...), '"')
			} else {
				to = appendString(to, e.orderID)
			}
		case 2:
			to = append(appendType(append(appendName(to, "type", colon), '"'), e, s), '"')
		case 3:
			to = strconv.AppendInt(appendName(to, "version", colon), e.version, 10)
		case 4:
			to = append(appendTime(append(appendName(to, "occurred_at", colon), '"'), e, s), '"')
		case 5:
			to = appendData(appendName(to, "data", colon), e, s, sep, colon)
		}
	}
	return append(to, '}')
}

func appendType(to []byte, e *event, s style) []byte {
	if e.typeText != "" {
		return append(to, e.typeText...)
	}
	to = append(to, kindNames[e.kind]...)
	switch {
	case e.lines:
		return append(to, ".v2"...)
	case s.bare:
		return to
	}
	return append(to, ".v1"...)
}

func appendTime(to []byte, e *event, s style) []byte {
	at := e.at
	if s.zone != 0 {
		at = at.In(time.FixedZone("", s.zone*60))
	}
	return at.AppendFormat(to, time.RFC3339Nano)
}

func appendData(to []byte, e *event, s style, sep, colon string) []byte {
	to = append(to, '{')
	start := len(to)
	member := func(name string) {
		if len(to) > start {
			to = append(to, sep...)
		}
		to = appendName(to, name, colon)
	}
	text := func(name, value string) {
		member(name)
		to = appendString(to, value)
	}
	amount := func(name string) {
		member(name)
		to = appendMoney(to, e, e.minor, s, sep, colon)
	}
	total := func() {
		if !e.lines {
			amount("total")
			return
		}
		member("lines")
		to = appendLines(to, e, s, sep, colon)
	}
	first, last := func() {}, func() {}
	switch e.kind {
	case created:
		first, last = func() { text("customer_id", e.customer) }, total
	case amended:
		first = func() { amount("total") }
	case paid:
		first, last = func() { text("payment_id", e.reference) }, func() { amount("amount") }
	case shipped:
		first, last = func() { text("carrier", e.label) }, func() { text("tracking_number", e.reference) }
	case cancelled, returned:
		first = func() { text("reason", e.label) }
	case refunded:
		first, last = func() { text("refund_id", e.reference) }, func() { amount("amount") }
	}
	if s.rotate%2 == 1 {
		first, last = last, first
	}
	first()
	if e.extra {
		member("note")
		if s.numbers {
			to = append(to, `{"weights":[10e-1,2.5,0.0],"gift":true}`...)
		} else {
			to = append(to, `{"gift":true,"weights":[1,2.50,-0]}`...)
		}
	}
	last()
	if (e.kind == paid || e.kind == refunded) && e.customer != "" {
		text("customer_id", e.customer)
	}
	return append(to, '}')
}

// appendLines writes the total as what it is made of.
func appendLines(to []byte, e *event, s style, sep, colon string) []byte {
	third := e.minor / 3
	to = append(to, '[')
	for i, line := range []struct{ quantity, price int64 }{{2, third}, {1, e.minor - 2*third}} {
		if i > 0 {
			to = append(to, sep...)
		}
		to = append(appendName(append(to, '{'), "sku", colon), `"sku-`...)
		to = append(strconv.AppendInt(to, e.minor%97+int64(i), 10), '"')
		to = strconv.AppendInt(appendName(append(to, sep...), "quantity", colon), line.quantity, 10)
		to = appendMoney(appendName(append(to, sep...), "unit_price", colon), e, line.price, s, sep, colon)
		to = append(to, '}')
	}
	return append(to, ']')
}

func appendMoney(to []byte, e *event, minor int64, s style, sep, colon string) []byte {
	to = appendName(append(to, '{'), "amount", colon)
	switch {
	case e.asNumber && s.numbers:
		to = strconv.AppendInt(to, minor, 10)
		to = strconv.AppendInt(append(to, 'e'), int64(-e.currency.places), 10)
	case e.asNumber:
		to = appendAmount(to, minor, e.currency.places)
	default:
		to = append(appendAmount(append(to, '"'), minor, e.currency.places), '"')
	}
	to = appendName(append(to, sep...), "currency", colon)
	return append(appendString(to, e.currency.code), '}')
}

// appendAmount writes minor units as a decimal.
func appendAmount(to []byte, minor int64, places int) []byte {
	unit := int64(1)
	for range places {
		unit *= 10
	}
	to = strconv.AppendInt(to, minor/unit, 10)
	if places == 0 {
		return to
	}
	to = append(to, '.')
	for rest := minor % unit; unit > 1; {
		unit /= 10
		to = append(to, byte('0'+rest/unit%10))
	}
	return to
}

func appendName(to []byte, name, colon string) []byte {
	return append(append(append(append(to, '"'), name...), '"'), colon...)
}

// appendString writes text that needs no escaping: everything that this
// package makes up.
func appendString(to []byte, text string) []byte {
	return append(append(append(to, '"'), text...), '"')
}
