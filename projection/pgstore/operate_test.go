package pgstore_test

import (
	"testing"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
)

func TestStoreConformsForOperators(t *testing.T) {
	t.Parallel()
	projectiontest.OperatorConformance(t, func(t *testing.T) projection.OperatorStore {
		store, _ := openStore(t)
		return store
	})
}
