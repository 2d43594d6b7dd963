package order

// State is where an order stands. The texts are stored and shown as they are.
type State string

// The states of an order. None is the one before OrderCreated, when there is
// no order yet; it is not among States.
const (
	None           State = ""
	StatePending   State = "pending"
	StatePaid      State = "paid"
	StatePacked    State = "packed"
	StateShipped   State = "shipped"
	StateDelivered State = "delivered"
	StateCancelled State = "cancelled"
	StateReturned  State = "returned"
	StateRefunded  State = "refunded"
)

// States lists every state but None, in the order of an order's life.
func States() []State {
	return []State{
		StatePending, StatePaid, StatePacked, StateShipped,
		StateDelivered, StateCancelled, StateReturned, StateRefunded,
	}
}

func (s State) known() bool {
	switch s {
	case None, StatePending, StatePaid, StatePacked, StateShipped,
		StateDelivered, StateCancelled, StateReturned, StateRefunded:
		return true
	}
	return false
}
