package order

import (
	"fmt"
	"strings"
)

// Mermaid draws the state machine as a Mermaid stateDiagram-v2. An arrow's
// condition follows its event in brackets.
func Mermaid() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n")
	for _, t := range Transitions() {
		from := string(t.From)
		if t.From == None {
			from = "[*]"
		}
		fmt.Fprintf(&b, "    %s --> %s : %s", from, t.To, t.Event)
		if t.When != "" {
			fmt.Fprintf(&b, " [%s]", t.When)
		}
		b.WriteByte('\n')
	}
	for _, s := range States() {
		if len(Allowed(s)) == 0 {
			fmt.Fprintf(&b, "    %s --> [*]\n", s)
		}
	}
	return b.String()
}
