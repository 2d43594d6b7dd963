// Package pgstore keeps the projection in PostgreSQL: the write side behind
// projection.Store, and the read side for commands and the API.
//
// Every statement of the write side takes a whole batch. The statements are
// files under queries, one each.
package pgstore
