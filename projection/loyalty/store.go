package loyalty

import (
	"context"
	"time"

	"github.com/orderprojector/orderprojector/domain/loyalty"
	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/effects"
)

// Tx is one transaction on accounts and ledger.
type Tx interface {
	effects.Tx
	// LockAccounts locks the accounts of orders, in key order, and returns them as they are then. Where
	// there is none, an empty one is inserted first.
	LockAccounts(ctx context.Context, orderIDs []string) (map[string]*Account, error)
	// Entries returns the ledger's entries of these sources.
	Entries(ctx context.Context, sources []string) (map[string]Entry, error)
	// AddEntries adds entries. It returns how many were added: fewer when another transaction has added one of the sources.
	AddEntries(ctx context.Context, entries []Entry) (added int, err error)
	// SaveAccounts writes what is known of the customers of locked accounts. Where the owner is another one
	// than before, the order's entries become theirs.
	SaveAccounts(ctx context.Context, accounts []*Account) error
}

// Account is what is known of an order.
type Account struct {
	OrderID string
	loyalty.Account
	// owner is whose points the stored entries are; changed says that the customers are not as stored.
	owner   string
	changed bool
}

// NewAccount is an account as it is stored.
func NewAccount(orderID string, stored loyalty.Account) *Account {
	return &Account{OrderID: orderID, Account: stored, owner: stored.Customers.Owner()}
}

// Moved reports whether stored entries of the order belong to another customer now.
func (a *Account) Moved() bool { return a.owner != a.Customers.Owner() }

// Entry is one entry of the ledger: a payment or a refund, and what it changed.
type Entry struct {
	loyalty.Movement
	OrderID    string
	CustomerID string // "" while nobody is known
	Delta      int64  // points
	EventID    string
	OccurredAt time.Time
	projection.TopicPartition
	Offset int64
}

// same reports whether an entry tells of the same payment or refund.
func (e *Entry) same(orderID string, m loyalty.Movement) bool {
	return e.OrderID == orderID && e.Amount == order.Money{Minor: m.Amount.Minor, Currency: m.Amount.Currency}
}
