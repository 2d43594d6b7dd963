// Package rebuild projects a topic again, from its first record on, into tables of a
// schema of their own (the shadow), while the live ones serve. The shadow is filled by the
// ordinary projector over a pool whose sessions see the shadow's tables first. Once it has caught
// up it is compared with the live tables and exchanged with them in one short transaction. The
// tables that were live are kept in a third schema (the old set), and a rollback catches those up and
// exchanges them back by the same way.
//
// One rebuild per database runs at a time, under an advisory lock. Until the
// exchange commits the live tables are only read, and locked for moments.
package rebuild
