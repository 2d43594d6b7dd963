// Package portion bounds how much is read from a database, or deleted there, with one statement.
package portion

// Size is a number of rows, and of bytes that they hold. A single larger row is within every size.
type Size struct {
	Rows  int
	Bytes int64
}

// Portion is the size of the next statement. A portion starts full. After a statement that took
// too long the portion is halved, down to one row. After one that was fast it grows again.
// A Portion is used by one goroutine at a time.
type Portion struct {
	full   Size
	halved int
}

// New returns a portion that is full.
func New(full Size) *Portion { return &Portion{full: full} }

// Size returns the size of the next statement.
func (p *Portion) Size() Size {
	return Size{Rows: max(1, p.full.Rows>>p.halved), Bytes: max(1, p.full.Bytes>>p.halved)}
}

// Halve makes the portion smaller. It reports false where the portion is one row already.
func (p *Portion) Halve() bool {
	if p.Size().Rows == 1 {
		return false
	}
	p.halved++
	return true
}

// Grow undoes one halving.
func (p *Portion) Grow() { p.halved = max(0, p.halved-1) }
