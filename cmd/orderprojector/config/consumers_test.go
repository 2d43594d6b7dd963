package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

// What only the consumer that calls a receiver needs is asked of that alone.
func TestWebhookIsRequiredWhereItIsUsed(t *testing.T) {
	t.Parallel()
	c := valid()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	err := c.Validate(config.SectionNotifications)
	for _, name := range []string{"webhook-url", "webhook-secret"} {
		if err == nil || !strings.Contains(err.Error(), name+" is not set") {
			t.Errorf("%v does not name %s", err, name)
		}
	}
}

func TestConsumerSettings(t *testing.T) {
	t.Parallel()
	webhook := func(change func(*config.Webhook)) func(*config.Config) {
		return func(c *config.Config) { change(&c.Notifications.Webhook) }
	}
	for name, tc := range map[string]struct {
		change        func(*config.Config)
		setting, want string
	}{
		"no group":               {func(c *config.Config) { c.Loyalty.Group = "" }, "loyalty-group", "empty"},
		"the projector's group":  {func(c *config.Config) { c.Loyalty.Group = c.Kafka.Group }, "loyalty-group", "is group too"},
		"each other's group":     {func(c *config.Config) { c.Notifications.Group = c.Loyalty.Group }, "loyalty-group", "is notifications-group too"},
		"no URL":                 {webhook(func(w *config.Webhook) { w.URL = "receiver.example/x" }), "webhook-url", "not an http or https URL"},
		"a password in the URL":  {webhook(func(w *config.Webhook) { w.URL = "https://u:canary@receiver.example/x" }), "webhook-url", "user or password"},
		"no place for the key":   {webhook(func(w *config.Webhook) { w.StatusURL = "https://receiver.example/x" }), "webhook-status-url", "{key} once"},
		"two places for the key": {webhook(func(w *config.Webhook) { w.StatusURL = "https://r/{key}/{key}" }), "webhook-status-url", "{key} once"},
		"no timeout":             {webhook(func(w *config.Webhook) { w.Timeout = 0 }), "webhook-timeout", `"0s"`},
		"no concurrency":         {webhook(func(w *config.Webhook) { w.Concurrency = 0 }), "webhook-concurrency", `"0"`},
	} {
		c := valid()
		tc.change(&c)
		var problem *config.Error
		if err := c.Validate(); !errors.As(err, &problem) || problem.Name != tc.setting || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want %s: %s", name, err, tc.setting, tc.want)
		}
	}
	c := valid()
	c.Notifications.Webhook.URL = "http://receiver.example/x"
	if w := strings.Join(c.Warnings(), ""); !strings.Contains(w, "clear text") {
		t.Errorf("warnings: %q", w)
	}
}
