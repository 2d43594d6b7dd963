package cli

import (
	"slices"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
)

// hintsFor collects what to tell the operator: every hint that the errors in
// the tree carry themselves, else one for a failure that is recognised.
func hintsFor(err error) []string {
	var hints []string
	collectHints(err, &hints)
	if len(hints) == 0 {
		if hint := app.Hint(err); hint != "" {
			hints = append(hints, hint)
		}
	}
	return hints
}

func collectHints(err error, hints *[]string) {
	if h, ok := err.(interface{ Hint() string }); ok {
		if hint := h.Hint(); hint != "" && !slices.Contains(*hints, hint) {
			*hints = append(*hints, hint)
		}
	}
	switch e := err.(type) { //nolint:errorlint // walks the tree one step at a time
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			collectHints(inner, hints)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			collectHints(inner, hints)
		}
	}
}
