// Package pgstore is the outbox in PostgreSQL, as the relay and its operators
// see it. The side of order services is package outbox.
package pgstore
