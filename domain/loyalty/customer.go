package loyalty

// Customers is who may own an order's points. Events need not name the customer, and those that
// do need not agree, so that the owner is worked out of all of them.
type Customers struct {
	Ordered  string // named by OrderCreated, or ""
	Paid     Named  // named by a payment
	Refunded Named  // named by a refund
}

// Named is a customer, and the source that names them.
type Named struct {
	Customer string // "" for nobody
	Source   string
}

// Note takes who a movement names, "" for nobody. Of several, the one with the lowest source
// counts, so that their order does not matter.
func (c *Customers) Note(m Movement, customer string) {
	if customer == "" {
		return
	}
	at := &c.Paid
	if m.Kind == Refund {
		at = &c.Refunded
	}
	if source := m.Source(); at.Customer == "" || source < at.Source {
		*at = Named{customer, source}
	}
}

// Owner is whose points an order's are, "" while nobody is known: who paid, as the payment says, else who
// ordered, else who got money back.
func (c Customers) Owner() string {
	switch {
	case c.Paid.Customer != "":
		return c.Paid.Customer
	case c.Ordered != "":
		return c.Ordered
	}
	return c.Refunded.Customer
}
