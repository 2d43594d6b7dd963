package config

import "strings"

// List is a comma-separated list of strings.
type List []string

func (l List) String() string { return strings.Join(l, ",") }

// Set replaces the list.
func (l *List) Set(text string) error {
	*l = nil
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			*l = append(*l, part)
		}
	}
	return nil
}

// Type is the flag's type in help.
func (l *List) Type() string { return "list" }
