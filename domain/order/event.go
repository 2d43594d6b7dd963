package order

// Type names what happened. The schema version of an event is not part of it:
// by the time an event is here, it has the newest shape of its type.
type Type string

// The types of events.
const (
	TypeCreated   Type = "OrderCreated"
	TypeAmended   Type = "OrderAmended"
	TypePaid      Type = "OrderPaid"
	TypePacked    Type = "OrderPacked"
	TypeShipped   Type = "OrderShipped"
	TypeDelivered Type = "OrderDelivered"
	TypeCancelled Type = "OrderCancelled"
	TypeReturned  Type = "OrderReturned"
	TypeRefunded  Type = "OrderRefunded"
)

// Types lists every type, in the order of an order's life.
func Types() []Type {
	return []Type{
		TypeCreated, TypeAmended, TypePaid, TypePacked, TypeShipped,
		TypeDelivered, TypeCancelled, TypeReturned, TypeRefunded,
	}
}

// Event is something that happened to an order: one of the struct types below,
// by value. Apply refuses every other implementation, pointers included.
type Event interface {
	Type() Type
}

// Created opens an order and fixes its customer and its currency.
type Created struct {
	CustomerID string
	Total      Money
}

// Amended replaces the total of an order that is not paid yet.
type Amended struct {
	Total Money
}

// Paid says that the whole total was paid.
type Paid struct {
	PaymentID  string
	Amount     Money
	CustomerID string // optional: who paid, for those who do not know the order
}

// Packed says that the goods are ready to be shipped.
type Packed struct{}

// Shipped says that the goods were handed to the carrier.
type Shipped struct {
	Carrier        string
	TrackingNumber string
}

// Delivered says that the customer has the goods.
type Delivered struct{}

// Cancelled ends an order before anything was shipped.
type Cancelled struct {
	Reason string
}

// Returned says that the goods came back.
type Returned struct {
	Reason string
}

// Refunded says that some or all of the money paid was given back. An order
// may be refunded in several parts.
type Refunded struct {
	RefundID   string
	Amount     Money  // of this part alone
	CustomerID string // optional, as in Paid
}

// Type returns TypeCreated.
func (Created) Type() Type { return TypeCreated }

// Type returns TypeAmended.
func (Amended) Type() Type { return TypeAmended }

// Type returns TypePaid.
func (Paid) Type() Type { return TypePaid }

// Type returns TypePacked.
func (Packed) Type() Type { return TypePacked }

// Type returns TypeShipped.
func (Shipped) Type() Type { return TypeShipped }

// Type returns TypeDelivered.
func (Delivered) Type() Type { return TypeDelivered }

// Type returns TypeCancelled.
func (Cancelled) Type() Type { return TypeCancelled }

// Type returns TypeReturned.
func (Returned) Type() Type { return TypeReturned }

// Type returns TypeRefunded.
func (Refunded) Type() Type { return TypeRefunded }
