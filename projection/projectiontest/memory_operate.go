package projectiontest

import (
	"context"
	"slices"

	"github.com/orderprojector/orderprojector/projection"
)

// Decisions returns the operators' decisions that stand.
func (m *Memory) Decisions() []projection.OperatorDecision {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.state.decisions), func(d projection.OperatorDecision) bool { return d.Undone != nil })
}

// Audited returns the audit log.
func (m *Memory) Audited() []projection.AuditEntry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.state.audit)
}

// decided returns the decisions about an order that stand.
func (s *state) decided(orderID string) []projection.OperatorDecision {
	var standing []projection.OperatorDecision
	for _, d := range s.decisions {
		if d.OrderID == orderID && d.Undone == nil {
			standing = append(standing, d)
		}
	}
	return standing
}

func (t *memoryTx) Decisions(_ context.Context, orderIDs []string) (map[string][]projection.OperatorDecision, error) {
	all := map[string][]projection.OperatorDecision{}
	for _, id := range orderIDs {
		if standing := t.decided(id); len(standing) > 0 {
			all[id] = standing
		}
	}
	return all, nil
}

func (t *memoryTx) SubstitutesAt(_ context.Context, log projection.TopicPartition, offsets []int64) ([]projection.OperatorDecision, error) {
	var found []projection.OperatorDecision
	for _, d := range t.decisions {
		if d.ByCoordinates && d.Undone == nil && d.Log == log && slices.Contains(offsets, d.Offset) {
			found = append(found, d)
		}
	}
	return found, nil
}
