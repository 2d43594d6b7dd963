package loyalty

import "github.com/orderprojector/orderprojector/domain/order"

// Kind says in which direction money went.
type Kind string

// The kinds. The texts are part of a movement's source, which is stored.
const (
	Payment Kind = "payment"
	Refund  Kind = "refund"
)

// Movement is one payment or refund.
type Movement struct {
	Kind   Kind
	ID     string // of the payment or refund: unique among its kind, over all orders
	Amount order.Money
}

// Source is the movement's business key: two events that tell of the same payment have the same source.
func (m Movement) Source() string { return string(m.Kind) + ":" + m.ID }
