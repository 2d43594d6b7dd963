package pgstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	domain "github.com/orderprojector/orderprojector/domain/loyalty"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/effects"
	"github.com/orderprojector/orderprojector/projection/loyalty"
)

var (
	sqlAccountsReserve = statement("points_accounts_reserve")
	sqlAccountsLock    = statement("points_accounts_lock")
	sqlAccountsTotals  = statement("points_accounts_totals")
	sqlAccountsSave    = statement("points_accounts_save")
	sqlEntriesRead     = statement("points_entries_read")
	sqlEntriesAdd      = statement("points_entries_add")
	sqlEntriesMove     = statement("points_entries_move")
)

// LoyaltyStore is a Store as the loyalty consumer needs it.
type LoyaltyStore struct{ *Store }

var _ effects.Store[loyalty.Tx] = LoyaltyStore{}

// InTx implements effects.Store.
func (s LoyaltyStore) InTx(ctx context.Context, work func(context.Context, loyalty.Tx) error) error {
	return s.Store.InTx(ctx, func(ctx context.Context, t projection.Tx) error {
		own := t.(*tx)
		own.subject = &bookedPoints
		return work(ctx, own)
	})
}

// LockAccounts implements loyalty.Tx.
func (t *tx) LockAccounts(ctx context.Context, orderIDs []string) (map[string]*loyalty.Account, error) {
	stored := make(map[string]domain.Account, len(orderIDs))
	// One round trip; each statement sees what was committed before it begins, so the totals are those
	// under the locks.
	batch := &pgx.Batch{}
	batch.Queue(sqlAccountsReserve, orderIDs)
	batch.Queue(sqlAccountsLock, orderIDs).Query(func(rows pgx.Rows) error {
		var id string
		var c domain.Customers
		_, err := pgx.ForEachRow(rows, []any{&id, &c.Ordered, &c.Paid.Customer, &c.Paid.Source, &c.Refunded.Customer, &c.Refunded.Source}, func() error {
			stored[id] = domain.Account{Customers: c, Totals: map[string]domain.Totals{}}
			return nil
		})
		return err
	})
	batch.Queue(sqlAccountsTotals, orderIDs).Query(func(rows pgx.Rows) error {
		var id, currency string
		var totals domain.Totals
		_, err := pgx.ForEachRow(rows, []any{&id, &currency, &totals.Paid, &totals.Refunded}, func() error {
			stored[id].Totals[currency] = totals
			return nil
		})
		return err
	})
	if err := t.SendBatch(ctx, batch).Close(); err != nil {
		return nil, err
	}
	accounts := make(map[string]*loyalty.Account, len(stored))
	for id, a := range stored {
		accounts[id] = loyalty.NewAccount(id, a)
	}
	return accounts, nil
}

// Entries implements loyalty.Tx.
func (t *tx) Entries(ctx context.Context, sources []string) (map[string]loyalty.Entry, error) {
	rows, err := t.Query(ctx, sqlEntriesRead, sources)
	if err != nil {
		return nil, err
	}
	entries := make(map[string]loyalty.Entry)
	var source string
	var e loyalty.Entry
	_, err = pgx.ForEachRow(rows, []any{&source, &e.OrderID, &e.Amount.Minor, &e.Amount.Currency, &e.EventID}, func() error {
		kind, id, _ := strings.Cut(source, ":")
		e.Kind, e.ID = domain.Kind(kind), id
		entries[source] = e
		return nil
	})
	return entries, err
}

// AddEntries implements loyalty.Tx.
func (t *tx) AddEntries(ctx context.Context, entries []loyalty.Entry) (int, error) {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b loyalty.Entry) int { return strings.Compare(a.Source(), b.Source()) })
	var (
		sources, customers, orders, kinds, currencies, events, topics []string
		deltas, amounts, offsets                                      []int64
		times                                                         []time.Time
		topicIDs                                                      []uuid.UUID
		partitions                                                    []int32
	)
	for i := range entries {
		e := &entries[i]
		sources, customers, orders = append(sources, e.Source()), append(customers, e.CustomerID), append(orders, e.OrderID)
		deltas, kinds, amounts = append(deltas, e.Delta), append(kinds, string(e.Kind)), append(amounts, e.Amount.Minor)
		currencies, events, times = append(currencies, e.Amount.Currency), append(events, e.EventID), append(times, e.OccurredAt)
		topics, topicIDs = append(topics, e.Topic), append(topicIDs, uuid.UUID(e.TopicID))
		partitions, offsets = append(partitions, e.Partition), append(offsets, e.Offset)
	}
	tag, err := t.Exec(ctx, sqlEntriesAdd, sources, customers, orders, deltas, kinds, amounts, currencies, events, times, topics, topicIDs, partitions, offsets)
	return int(tag.RowsAffected()), err
}

// SaveAccounts implements loyalty.Tx.
func (t *tx) SaveAccounts(ctx context.Context, accounts []*loyalty.Account) error {
	var ids, ordered, paid, paidSources, refunded, refundedSources, moved, owners []string
	for _, a := range accounts {
		c := a.Customers
		ids, ordered = append(ids, a.OrderID), append(ordered, c.Ordered)
		paid, paidSources = append(paid, c.Paid.Customer), append(paidSources, c.Paid.Source)
		refunded, refundedSources = append(refunded, c.Refunded.Customer), append(refundedSources, c.Refunded.Source)
		if a.Moved() && len(a.Totals) > 0 {
			moved, owners = append(moved, a.OrderID), append(owners, c.Owner())
		}
	}
	batch := &pgx.Batch{}
	batch.Queue(sqlAccountsSave, ids, ordered, paid, paidSources, refunded, refundedSources)
	if len(moved) > 0 {
		batch.Queue(sqlEntriesMove, moved, owners)
	}
	return t.SendBatch(ctx, batch).Close()
}
