package projectiontest_test

import (
	"testing"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
)

func TestMemoryConforms(t *testing.T) {
	projectiontest.Conformance(t, func(*testing.T) projection.Store { return projectiontest.NewMemory() })
}

func TestMemoryConformsForOperators(t *testing.T) {
	projectiontest.OperatorConformance(t, func(*testing.T) projection.OperatorStore { return projectiontest.NewMemory() })
}
