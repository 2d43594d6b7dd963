package pgstore_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/projection/projectiontest"
	"github.com/orderprojector/orderprojector/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func openStore(t *testing.T) (*pgstore.Store, *pgxpool.Pool) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(testenv.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	pgstore.PrepareWriter(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pgstore.New(pool), pool
}

func TestStoreConforms(t *testing.T) {
	projectiontest.Conformance(t, func(t *testing.T) projection.Store {
		store, _ := openStore(t)
		return store
	})
}
