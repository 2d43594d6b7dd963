package freeport_test

import (
	"testing"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded/freeport"
)

func TestTake(t *testing.T) {
	ports, err := freeport.Take(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		seen[p] = true
	}
	if len(seen) != 20 {
		t.Fatalf("not 20 different ports: %v", ports)
	}
}
