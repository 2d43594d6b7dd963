package schemacheck

import (
	"strings"
	"testing"

	"github.com/orderprojector/orderprojector/projection/projectiontest"
)

// Checking an event takes time linear in its size, whatever is wrong with it, and however often.
func TestCheckingIsLinear(t *testing.T) {
	c := newChecker(t)
	for name, shape := range map[string][3]string{
		"version of digits":       {`{"version":`, "7", `}`},
		"version and a type":      {`{"type":"OrderPacked","version":`, "7", `}`},
		"amount of digits":        {`{"type":"OrderAmended","data":{"total":{"currency":"EUR","amount":`, "7", `}}}`},
		"amount as a text":        {`{"type":"OrderAmended","data":{"total":{"currency":"EUR","amount":"`, "7", `"}}}`},
		"quantity of digits":      {`{"type":"OrderCreated.v2","data":{"lines":[{"sku":"s","unit_price":{"amount":1,"currency":"EUR"},"quantity":`, "7", `}]}}`},
		"lines that are numbers":  {`{"type":"OrderCreated.v2","data":{"lines":[`, "1,", `1]}}`},
		"lines without members":   {`{"type":"OrderCreated.v2","data":{"lines":[`, "{},", `{}]}}`},
		"lines in two currencies": {`{"type":"OrderCreated.v2","data":{"lines":[`, `{"sku":"s","quantity":1.5,"unit_price":{"amount":1,"currency":"EUR"}},`, `{"sku":"s","quantity":1,"unit_price":{"amount":1,"currency":"USD"}}]}}`},
		"a long type":             {`{"type":"OrderPaid`, `.v1`, `"}`},
		"names with slashes":      {`{"type":"OrderPacked","data":{"`, `/`, `":1}}`},
		"in base64":               {`{"specversion":"1.0","type":"OrderPacked","data_base64":"`, `e30=`, `"}`},
		"without end":             {``, `[`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			projectiontest.Linear(t, 128<<10, func(n int) func() {
				event := []byte(shape[0] + strings.Repeat(shape[1], n/len(shape[1])) + shape[2])
				return func() {
					for _, in := range Split(event) {
						if v := c.Check(in.Value); v.Verdict == Accepted {
							t.Errorf("accepted: %.200s", event)
						}
					}
				}
			})
		})
	}
}
