package portion_test

import (
	"testing"

	"github.com/orderprojector/orderprojector/projection/portion"
)

func TestAPortionShrinksToOneRowAndGrowsBack(t *testing.T) {
	full := portion.Size{Rows: 2048, Bytes: 8 << 20}
	p := portion.New(full)
	p.Grow()
	if got := p.Size(); got != full {
		t.Errorf("at the start: %+v", got)
	}
	halvings := 0
	for p.Halve() {
		halvings++
	}
	if got := p.Size(); got.Rows != 1 || got.Bytes != 4096 || halvings != 11 {
		t.Errorf("after %d halvings: %+v", halvings, got)
	}
	for range halvings {
		p.Grow()
	}
	if got := p.Size(); got != full {
		t.Errorf("grown back: %+v", got)
	}
}
