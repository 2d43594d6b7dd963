package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newHeldCommand(env *Env) *cobra.Command {
	return newGroup("held", "Look at held records, and decide about them",
		newHeldListCommand(env), newHeldShowCommand(env), newHeldRetryCommand(env), newHeldGiveUpCommand(env))
}

// heldPlace says where in its queue a held record is.
func heldPlace(before int64) string {
	if before == 0 {
		return "head"
	}
	return fmt.Sprintf("%d before it", before)
}
