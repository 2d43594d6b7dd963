//go:build unix

package testenv_test

import (
	"testing"

	"github.com/orderprojector/orderprojector/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
