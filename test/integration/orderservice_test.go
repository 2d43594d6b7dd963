//go:build unix

package integration_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orderprojector/orderprojector/examples/orderservice/orders"
	"github.com/orderprojector/orderprojector/test/testenv"
)

// orderservice runs a command line of the example service, with a database that has nothing yet but what it makes itself.
func orderservice(t testing.TB, dsn string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := testenv.StartProcess(t, testenv.ProcessConfig{Package: "./examples/orderservice", Args: args,
		Env: []string{"DATABASE_URL=" + dsn, "TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}})
	code = p.Wait(patience)
	return code, p.Stdout(), p.Stderr()
}

// Each command of the service, the first of them in an empty database that orderprojector migrates later; refused commands name the
// states that allow them, and repeated ones change nothing.
func TestOrderServiceCommands(t *testing.T) {
	t.Parallel()
	dsn := testenv.EmptyDatabase(t)
	version := 0
	for _, step := range []struct {
		line string
		code int
		says string // in what it prints, or in its error
	}{
		{`create o-1 --customer c-1 --total|19.99 EUR`, 0, "version 1"},
		{`create o-1 --customer c-1 --total|19.99 EUR`, 1, "create is for orders that do not exist yet"},
		{`amend o-1 --total|21.00 EUR --idempotency-key k-1`, 0, "version 2"},
		{`amend o-1 --total|21.00 EUR --idempotency-key k-1`, 0, "nothing was changed"},
		{`amend o-1 --total|22.00 EUR --idempotency-key k-1`, 1, "belongs to another command"},
		{`pack o-1`, 1, "pack is allowed in state paid"},
		{`ship o-1`, 1, "ship is allowed in state paid, packed"},
		{`pay o-1 --payment p-1 --amount|20.00 EUR`, 1, "the total is 21.00 EUR"},
		{`pay o-1 --payment p-1 --amount|21.00 USD`, 1, "the order is in EUR"},
		{`pay o-1 --payment p-1`, 0, "version 3"},
		{`pay o-1 --payment p-1`, 1, "it is paid"},
		{`pack o-1`, 0, "version 4"},
		{`ship o-1 --carrier DHL --tracking t-1`, 0, "version 5"},
		{`deliver o-1`, 0, "version 6"},
		{`cancel o-1`, 1, "cancel is allowed in state pending, paid, packed"},
		{`return o-1 --reason broken`, 0, "version 7"},
		{`refund o-1 --refund r-1 --amount|1.00 EUR`, 0, "version 8"},
		{`refund o-1 --refund r-2 --amount|99.00 EUR`, 1, "refunded"},
		{`refund o-1 --refund r-2`, 0, "version 9"},
		{`refund o-1 --refund r-3`, 1, "it is refunded"},
		{`pay o-none --payment p-1`, 1, "there is no such order"},
		{`create o-2 --customer c-1 --total|19.999 EUR`, 2, "kept exactly"},
		{`create o-2 --customer c-1 --total|19.99`, 2, "an amount and a currency"},
		{`create o-2 --total|19.99 EUR`, 2, "customer"},
		{`create o-2 --customer  --total|1 EUR`, 1, "customer_id is missing"},
		{`create`, 2, "arg"},
		{`steal o-1`, 2, "unknown command"},
	} {
		if version == 4 {
			testenv.Migrate(t, dsn) // in the middle of it all
		}
		args := joinMoney(strings.Split(step.line, " "))
		code, stdout, stderr := orderservice(t, dsn, args...)
		if code != step.code || !strings.Contains(stdout+stderr, step.says) {
			t.Errorf("%s: exit code %d\n%s%s", step.line, code, stdout, stderr)
		}
		if code == 0 && !strings.Contains(stdout, "nothing was changed") {
			version++
		}
	}
	if code, _, stderr := orderservice(t, "", "pack", "o-1"); code != 2 && code != 1 || !strings.Contains(stderr, "DATABASE_URL") {
		t.Errorf("without DATABASE_URL: exit code %d, %s", code, stderr)
	}
	pool := openPool(t, dsn)
	var messages, traced int64
	must(t, pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE traceparent LIKE '00-0af7651916cd43dd8448eb211c80319c-%') FROM outbox`).Scan(&messages, &traced))
	if messages != 9 || traced != 9 {
		t.Errorf("%d messages, %d of them traced", messages, traced)
	}
	var state string
	must(t, pool.QueryRow(t.Context(), `SELECT state || ' ' || total_minor || ' ' || refunded_minor FROM orderservice.orders`).Scan(&state))
	if state != "refunded 2100 2100" {
		t.Errorf("the order is %s", state)
	}
}

// joinMoney puts together what "--total|19.99 EUR" was split into.
func joinMoney(words []string) []string {
	var args []string
	for i := 0; i < len(words); i++ {
		name, amount, found := strings.Cut(words[i], "|")
		if !found {
			args = append(args, words[i])
			continue
		}
		if i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			amount += " " + words[i+1]
			i++
		}
		args = append(args, name, amount)
	}
	return args
}

// Commands of one order at the same time: of those that exclude each other exactly one wins, all others happen one after
// another, and no version is missing or there twice.
func TestOrderServiceCommandsOfOneOrder(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(testenv.Database(t))
	must(t, err)
	cfg.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	service := orders.New(pool)
	must(t, service.EnsureSchema(t.Context()))
	at := func(n int, do func(i int) error) (won, illegal int) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				err := do(i)
				var refused *orders.IllegalError
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won++
				case errors.As(err, &refused):
					illegal++
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		return won, illegal
	}
	do := func(c orders.Command) error {
		c.OrderID = "o-1"
		_, err := service.Do(t.Context(), c)
		return err
	}
	const rivals = 24
	if won, _ := at(rivals, func(i int) error {
		return do(orders.Command{Name: orders.Create, CustomerID: fmt.Sprint("c-", i), Amount: euros(1999)})
	}); won != 1 {
		t.Errorf("%d created the order", won)
	}
	if won, illegal := at(rivals, func(i int) error { return do(orders.Command{Name: orders.Amend, Amount: euros(int64(i))}) }); won != rivals || illegal > 0 {
		t.Errorf("%d of %d changed the total", won, rivals)
	}
	if won, illegal := at(rivals, func(i int) error {
		if i%2 == 0 {
			return do(orders.Command{Name: orders.Pay, PaymentID: fmt.Sprint("p-", i)})
		}
		return do(orders.Command{Name: orders.Cancel})
	}); won < 1 || won > 2 || won+illegal != rivals { // paid, or cancelled, or paid and then cancelled
		t.Errorf("%d won, %d were refused", won, illegal)
	}
	// One key, many times at once.
	repeats := 0
	var mu sync.Mutex
	if won, _ := at(rivals, func(int) error {
		r, err := service.Do(t.Context(), orders.Command{Name: orders.Create, OrderID: "o-2", CustomerID: "c", Amount: euros(1), IdempotencyKey: "k"})
		mu.Lock()
		defer mu.Unlock()
		if r.Repeated {
			repeats++
		}
		return err
	}); won != rivals || repeats != rivals-1 {
		t.Errorf("%d succeeded, %d of them as repetitions", won, repeats)
	}
	for id, count := range map[string]int64{"o-1": 0, "o-2": 1} {
		var version, messages, highest int64
		must(t, pool.QueryRow(t.Context(), `SELECT o.version, count(m), max(m.version) FROM orderservice.orders o JOIN outbox m ON m.aggregateid = o.order_id
			WHERE o.order_id = $1 GROUP BY o.version`, id).Scan(&version, &messages, &highest))
		if version != messages || version != highest || count > 0 && version != count {
			t.Errorf("order %s: version %d, %d messages up to version %d", id, version, messages, highest)
		}
	}
	// Numbers are taken under the order's lock: they follow the versions.
	var wrong int64
	must(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM outbox a JOIN outbox b USING (aggregateid) WHERE a.version < b.version AND a.seq > b.seq`).Scan(&wrong))
	if wrong > 0 {
		t.Errorf("%d pairs of messages are numbered against their versions", wrong)
	}
}
