package effects

import "fmt"

// Policy says what becomes of an event that is read again on purpose: by a replay, or below the watermark
// after somebody moved the group's offsets back. It has no default: the zero value is refused.
type Policy string

// The policies.
const (
	// Once: the event goes through the same checks as the first time, and what is missing is added.
	Once Policy = "once"
	// Suppress: the event is recorded as consumed, without its effect.
	Suppress Policy = "suppress"
)

// Validate refuses everything but the policies, and so what nobody declared.
func (p Policy) Validate() error {
	switch p {
	case Once, Suppress:
		return nil
	case "":
		return fmt.Errorf("no side-effect policy is declared: it must be %s or %s", Once, Suppress)
	}
	return fmt.Errorf("side-effect policy %q is neither %s nor %s", string(p), Once, Suppress)
}
