package reference

// order is what an order's events add up to.
type order struct {
	customerID string
	state      string
	currency   string
	total      int64
	paid       int64
	refunded   int64
}

// apply returns the order after a known event; ok is false when the state
// machine or a business rule refuses it.
func (o order) apply(e event) (next order, ok bool) {
	from := func(states ...string) bool {
		for _, state := range states {
			if o.state == state {
				return true
			}
		}
		return false
	}
	next = o
	switch e.known {
	case "OrderCreated":
		next = order{customerID: e.customerID, state: "pending", currency: e.amount.currency, total: e.amount.minor}
		return next, from("")
	case "OrderAmended":
		next.total = e.amount.minor
		return next, from("pending") && e.amount.currency == o.currency
	case "OrderPaid":
		next.state, next.paid = "paid", e.amount.minor
		return next, from("pending") && e.amount.currency == o.currency && e.amount.minor == o.total
	case "OrderPacked":
		next.state = "packed"
		return next, from("paid")
	case "OrderShipped":
		next.state = "shipped"
		return next, from("paid", "packed")
	case "OrderDelivered":
		next.state = "delivered"
		return next, from("shipped")
	case "OrderCancelled":
		next.state = "cancelled"
		return next, from("pending", "paid", "packed")
	case "OrderReturned":
		next.state = "returned"
		return next, from("shipped", "delivered")
	case "OrderRefunded":
		next.refunded += e.amount.minor
		if e.amount.minor > o.paid-o.refunded { // also: no overflow below
			return o, false
		}
		if next.refunded == next.paid {
			next.state = "refunded"
		}
		return next, from("paid", "packed", "shipped", "delivered", "cancelled", "returned") &&
			e.amount.currency == o.currency
	default:
		return o, false
	}
}
