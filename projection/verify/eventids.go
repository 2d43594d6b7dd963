package verify

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/orderprojector/orderprojector/projection/reference"
)

// use is one use of an event ID: its hash, and which order it is.
type use struct {
	hash  uint64
	order int32
}

// sharedEventIDs finds the event IDs that several orders use, whether their
// events are applied, wait, or are refused. Hashes first: IDs are kept only of those that collide.
func sharedEventIDs(result *reference.Result) []SharedEventID {
	seed := maphash.MakeSeed()
	numbers := map[string]int32{}
	var uses []use
	walk(result, func(orderID, eventID string) {
		n, ok := numbers[orderID]
		if !ok {
			n = int32(len(numbers))
			numbers[orderID] = n
		}
		uses = append(uses, use{maphash.String(seed, eventID), n})
	})
	slices.SortFunc(uses, func(a, b use) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.order, b.order)) })
	suspects := map[uint64]bool{}
	for i := 1; i < len(uses); i++ {
		if uses[i].hash == uses[i-1].hash && uses[i].order != uses[i-1].order {
			suspects[uses[i].hash] = true
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	orders := map[string][]string{}
	walk(result, func(orderID, eventID string) {
		if suspects[maphash.String(seed, eventID)] {
			orders[eventID] = append(orders[eventID], orderID)
		}
	})
	var shared []SharedEventID
	for eventID, ids := range orders {
		slices.Sort(ids)
		if ids = slices.Compact(ids); len(ids) > 1 {
			shared = append(shared, SharedEventID{eventID, ids})
		}
	}
	slices.SortFunc(shared, func(a, b SharedEventID) int { return strings.Compare(a.EventID, b.EventID) })
	return shared
}

func walk(result *reference.Result, visit func(orderID, eventID string)) {
	for i := range result.Orders {
		o := &result.Orders[i]
		for j := range o.Ledger {
			if id := o.Ledger[j].EventID; id != "" {
				visit(o.OrderID, id)
			}
		}
	}
	for _, p := range result.Parked {
		visit(p.OrderID, p.EventID)
	}
	for _, l := range result.DeadLetters {
		if l.OrderID != "" && l.EventID != "" {
			visit(l.OrderID, l.EventID)
		}
	}
}
