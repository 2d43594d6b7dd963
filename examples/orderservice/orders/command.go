package orders

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/orderprojector/orderprojector/domain/order"
)

// Name names a command.
type Name string

// The commands.
const (
	Create  Name = "create"
	Amend   Name = "amend"
	Pay     Name = "pay"
	Pack    Name = "pack"
	Ship    Name = "ship"
	Deliver Name = "deliver"
	Cancel  Name = "cancel"
	Return  Name = "return"
	Refund  Name = "refund"
)

// Command is what is to be done to an order. Which fields count depends on the name.
type Command struct {
	Name    Name   `json:"command"`
	OrderID string `json:"order_id"`

	CustomerID string `json:"customer_id,omitempty"` // create
	// Amount is the total of create and amend, and the amount of pay and refund. nil
	// means the whole: what is to be paid, or what is paid and not refunded.
	Amount    *order.Money `json:"amount,omitempty"`
	PaymentID string       `json:"payment_id,omitempty"` // pay
	RefundID  string       `json:"refund_id,omitempty"`  // refund
	Carrier   string       `json:"carrier,omitempty"`    // ship
	Tracking  string       `json:"tracking,omitempty"`   // ship
	Reason    string       `json:"reason,omitempty"`     // cancel, return

	// IdempotencyKey makes a repetition of the command change nothing; empty for none.
	IdempotencyKey string `json:"-"`
	// TraceParent and TraceState are the W3C trace context that the event carries; empty for none.
	TraceParent string `json:"-"`
	TraceState  string `json:"-"`
}

// validate refuses what the database could not look up.
func (c Command) validate() error {
	for name, id := range map[string]string{"order ID": c.OrderID, "idempotency key": c.IdempotencyKey} {
		if len(id) > 200 || !utf8.ValidString(id) || strings.IndexByte(id, 0) >= 0 || id == "" && name == "order ID" {
			return fmt.Errorf("the %s must be text of 1 to 200 bytes", name)
		}
	}
	return nil
}

// content is what two commands of one key must have in common.
func (c Command) content() (string, error) {
	text, err := json.Marshal(c)
	return string(text), err
}

// event is what the command makes happen to an order.
func (c Command) event(o order.Order) (order.Event, error) {
	whole := func(minor int64) order.Money {
		if c.Amount != nil {
			return *c.Amount
		}
		return order.Money{Minor: minor, Currency: o.Currency}
	}
	switch c.Name {
	case Create, Amend:
		if c.Amount == nil {
			return nil, fmt.Errorf("%s needs a total", c.Name)
		}
		if c.Name == Amend {
			return order.Amended{Total: *c.Amount}, nil
		}
		return order.Created{CustomerID: c.CustomerID, Total: *c.Amount}, nil
	case Pay:
		return order.Paid{PaymentID: c.PaymentID, CustomerID: o.CustomerID, Amount: whole(o.TotalMinor)}, nil
	case Pack:
		return order.Packed{}, nil
	case Ship:
		return order.Shipped{Carrier: c.Carrier, TrackingNumber: c.Tracking}, nil
	case Deliver:
		return order.Delivered{}, nil
	case Cancel:
		return order.Cancelled{Reason: cmp.Or(c.Reason, "cancelled by the customer")}, nil
	case Return:
		return order.Returned{Reason: cmp.Or(c.Reason, "returned by the customer")}, nil
	case Refund:
		return order.Refunded{RefundID: c.RefundID, CustomerID: o.CustomerID, Amount: whole(o.PaidMinor - o.RefundedMinor)}, nil
	}
	return nil, fmt.Errorf("no such command: %q", c.Name)
}
