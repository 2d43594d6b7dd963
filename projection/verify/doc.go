// Package verify compares the projected rows with an independent fold of the
// topic and names, for every order that differs, the causes. It only reads, and
// can run while members project: the fold is brought to exactly the watermarks of one
// snapshot of the database before anything is compared, and what differs is
// looked at again, on later snapshots, before it is reported.
package verify
