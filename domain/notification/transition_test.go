package notification_test

import (
	"errors"
	"testing"

	"github.com/orderprojector/orderprojector/domain/notification"
)

// Every state and every event: what is not named here is refused.
func TestTransitions(t *testing.T) {
	t.Parallel()
	legal := map[notification.State]map[notification.Event]notification.State{
		notification.Pending: {notification.Claim: notification.Sending, notification.Cancel: notification.Cancelled},
		notification.Sending: {
			notification.Accept: notification.Sent, notification.Postpone: notification.Pending,
			notification.Refuse: notification.Failed, notification.Lose: notification.Unknown,
		},
		notification.Unknown: {
			notification.Claim: notification.Sending, notification.Accept: notification.Sent, notification.Refuse: notification.Failed,
			notification.Lose: notification.Unknown, notification.Retry: notification.Pending, notification.Cancel: notification.Cancelled,
		},
		notification.Failed:     {notification.Retry: notification.Pending, notification.Cancel: notification.Cancelled},
		notification.Suppressed: {notification.Retry: notification.Pending},
		notification.Cancelled:  {notification.Retry: notification.Pending},
	}
	for _, from := range notification.States() {
		for _, on := range notification.Events() {
			want, isLegal := legal[from][on]
			got, err := notification.Next(from, on)
			var refused *notification.TransitionError
			switch {
			case isLegal && (err != nil || got != want):
				t.Errorf("%s on %s: %s, %v; want %s", from, on, got, err, want)
			case !isLegal && (!errors.As(err, &refused) || got != from):
				t.Errorf("%s on %s: %s, %v; want an error", from, on, got, err)
			}
		}
	}
}
