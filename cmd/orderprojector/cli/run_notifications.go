package cli

import (
	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

func newRunNotificationsCommand(env *Env) *cobra.Command {
	return newRunConsumerCommand(env, &cobra.Command{
		Use:   "notifications",
		Short: "Tell a receiver of each payment, over a webhook, until told to stop",
		Long: `Join the consumer group --notifications-group and tell the receiver at --webhook-url of each OrderPaid event, once:
a signed POST with an Idempotency-Key that stays the same. Where it is not known whether the receiver has acted, it is asked at
--webhook-status-url before anything is sent again.

The schema must be there: see "migrate up".`,
	}, config.SectionNotifications, config.DefaultNotificationsHTTPAddress, app.NewNotifications)
}
