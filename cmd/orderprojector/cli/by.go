package cli

import (
	"os/user"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/projection"
)

// byFlags are the flags of an action that say who does it and why.
type byFlags struct {
	actor, comment string
	optional       bool
}

// addByFlags adds --actor and --comment. The comment is required unless optional.
func addByFlags(cmd *cobra.Command, optional bool) *byFlags {
	f := &byFlags{optional: optional}
	usage := "why, for the audit log"
	if !optional {
		usage += " (required)"
	}
	cmd.Flags().StringVar(&f.comment, "comment", "", usage)
	cmd.Flags().StringVar(&f.actor, "actor", "", "who, for the audit log (default the user of the operating system)")
	return f
}

// by returns who acts, or a usage error when it is not said why.
func (f *byFlags) by() (projection.By, error) {
	if f.comment == "" && !f.optional {
		return projection.By{}, usageError("--comment is required: the audit log says why")
	}
	by := projection.By{Actor: f.actor, Comment: f.comment}
	if by.Actor == "" {
		by.Actor = "unknown"
		if u, err := user.Current(); err == nil && u.Username != "" {
			by.Actor = u.Username
		}
	}
	return by, nil
}
