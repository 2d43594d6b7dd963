package generate

import (
	"math/rand/v2"
	"strconv"
	"time"
)

// lifecycle is the clean history of one order, and what is known of the order
// before each of its events.
type lifecycle struct {
	orderID  string
	events   []event
	before   []standing // before[i] is where events[i] finds the order
	standing standing   // after the last event
	currency currency
	customer string
	now      time.Time
}

// standing is how an order stands: the number of events and the amounts.
type standing struct {
	state    kind // the kind of the last event that moved the state
	none     bool // nothing happened yet
	total    int64
	paid     int64
	refunded int64
}

var (
	carriers = []string{"DHL", "UPS", "GLS", "Yamato", "Aramex"}
	reasons  = []string{"changed my mind", "too late", "wrong size", "défaut d’emballage", ""}
)

// live writes the order's whole life. It depends on the order's own random
// numbers alone, so that rates of faults do not change the orders.
func (l *lifecycle) live(rng *rand.Rand, orderID string, start time.Time, amendments int) {
	l.orderID, l.now = orderID, start
	l.events, l.before = l.events[:0], l.before[:0]
	l.standing = standing{none: true}
	l.currency = currencies[rng.IntN(len(currencies))]
	l.customer = "c-" + strconv.Itoa(rng.IntN(100_000))

	total := 1 + rng.Int64N(500_00)
	if l.currency.places == 3 {
		total *= 10
	}
	l.add(rng, created, total)
	for amendments += amendmentsOf(rng); amendments > 0; amendments-- {
		l.add(rng, amended, 1+rng.Int64N(2*total))
	}
	if rng.IntN(100) < 8 {
		l.add(rng, cancelled, 0)
		return
	}
	l.add(rng, paid, l.standing.total)
	if rng.IntN(100) < 80 {
		l.add(rng, packed, 0)
	}
	if rng.IntN(100) < 6 {
		l.add(rng, cancelled, 0)
		l.add(rng, refunded, l.standing.paid)
		return
	}
	l.add(rng, shipped, 0)
	isReturned := rng.IntN(100) < 12
	if !isReturned || rng.IntN(2) == 0 {
		l.add(rng, delivered, 0)
	}
	switch {
	case isReturned:
		l.add(rng, returned, 0)
		if part := l.standing.paid / 3; part > 0 && rng.IntN(2) == 0 {
			l.add(rng, refunded, part)
		}
		l.add(rng, refunded, l.standing.paid-l.standing.refunded)
	case rng.IntN(100) < 6 && l.standing.paid > 1:
		l.add(rng, refunded, 1+rng.Int64N(l.standing.paid-1)) // a goodwill refund; the order stays delivered
	}
}

func amendmentsOf(rng *rand.Rand) int {
	switch n := rng.IntN(100); {
	case n < 80:
		return 0
	case n < 95:
		return 1
	default:
		return 2
	}
}

// add appends the order's next event.
func (l *lifecycle) add(rng *rand.Rand, k kind, minor int64) {
	l.now = l.now.Add(time.Duration(1+rng.Int64N(int64(2*time.Minute/time.Microsecond))) * time.Microsecond)
	l.before = append(l.before, l.standing)
	l.events = append(l.events, l.event(rng, k, int64(len(l.events)+1), l.now, minor))
	l.standing.none = false
	switch k {
	case created:
		l.standing.total = minor
	case amended:
		l.standing.total = minor
		return // the state stays
	case paid:
		l.standing.paid = minor
	case refunded:
		if l.standing.refunded += minor; l.standing.refunded < l.standing.paid {
			return
		}
	}
	l.standing.state = k
}

// event makes an event of this order.
func (l *lifecycle) event(rng *rand.Rand, k kind, version int64, at time.Time, minor int64) event {
	e := event{
		id: newEventID(rng, at), orderID: l.orderID, kind: k, version: version, at: at,
		minor: minor, currency: l.currency, asNumber: rng.IntN(4) == 0, extra: rng.IntN(16) == 0,
	}
	switch k {
	case created:
		e.customer = l.customer
	case paid:
		e.reference = reference("p-", rng)
		if rng.IntN(2) == 0 {
			e.customer = l.customer
		}
	case shipped:
		e.label, e.reference = carriers[rng.IntN(len(carriers))], reference("t-", rng)
	case cancelled, returned:
		e.label = reasons[rng.IntN(len(reasons))]
	case refunded:
		e.reference = reference("r-", rng)
	}
	return e
}

func reference(prefix string, rng *rand.Rand) string {
	return prefix + strconv.FormatUint(rng.Uint64(), 36)
}
