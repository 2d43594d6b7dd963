package config

import (
	"net/url"
	"slices"
	"strings"
	"time"
)

// Loyalty is the consumer that keeps points.
type Loyalty struct {
	Group string
}

// Notifications is the consumer that calls a webhook for each payment.
type Notifications struct {
	Group   string
	Webhook Webhook
}

// Webhook is the receiver of notifications.
type Webhook struct {
	URL string // takes each notification, by POST
	// StatusURL says, by GET, whether the receiver has acted on an idempotency key, which stands for "{key}" in it; ""
	// where it cannot be asked.
	StatusURL   string
	Secret      Secret        // signs what is sent
	Idempotent  bool          // the receiver acts once on each idempotency key, however often it gets it
	Timeout     time.Duration // deadline of one call
	Concurrency int           // calls at the same time
}

// The default addresses of the consumers' listeners. They give way to a free port like DefaultHTTPAddress.
const (
	DefaultLoyaltyHTTPAddress       = "127.0.0.1:8082"
	DefaultNotificationsHTTPAddress = "127.0.0.1:8083"
)

// IsDefaultHTTPAddress reports whether an address is one that a program listens at unless told otherwise.
func IsDefaultHTTPAddress(address string) bool {
	return slices.Contains([]string{
		DefaultHTTPAddress, DefaultRelayHTTPAddress, DefaultLoyaltyHTTPAddress, DefaultNotificationsHTTPAddress,
	}, address)
}

func defaultLoyalty() Loyalty { return Loyalty{Group: "orderprojector-loyalty"} }

func defaultNotifications() Notifications {
	return Notifications{
		Group:   "orderprojector-notifications",
		Webhook: Webhook{Timeout: 10 * time.Second, Concurrency: 4},
	}
}

func (c *Config) consumerSettings() []setting {
	l, n := &c.Loyalty, &c.Notifications
	w := &n.Webhook
	return []setting{
		{section: SectionLoyalty, name: "loyalty-group", env: "ORDERPROJECTOR_LOYALTY_GROUP", value: (*text)(&l.Group),
			usage: "consumer group of run loyalty"},
		{section: SectionNotifications, name: "notifications-group", env: "ORDERPROJECTOR_NOTIFICATIONS_GROUP", value: (*text)(&n.Group),
			usage: "consumer group of run notifications"},
		{section: SectionNotifications, name: "webhook-url", env: "ORDERPROJECTOR_WEBHOOK_URL", value: (*text)(&w.URL),
			usage: "where notifications are sent, by POST"},
		{section: SectionNotifications, name: "webhook-status-url", env: "ORDERPROJECTOR_WEBHOOK_STATUS_URL", value: (*text)(&w.StatusURL),
			usage: "where the receiver says, by GET, whether it has acted on an idempotency key, which stands for {key} (default: it cannot be asked)"},
		{section: SectionNotifications, name: "webhook-secret", env: "ORDERPROJECTOR_WEBHOOK_SECRET", value: &w.Secret,
			usage: "signs what is sent: whsec_ and base64, or the bytes themselves", secret: true, fileVariant: true},
		{section: SectionNotifications, name: "webhook-idempotent", env: "ORDERPROJECTOR_WEBHOOK_IDEMPOTENT", value: (*boolean)(&w.Idempotent),
			usage: "the receiver acts once on each idempotency key, so what it may have got can be sent again"},
		{section: SectionNotifications, name: "webhook-timeout", env: "ORDERPROJECTOR_WEBHOOK_TIMEOUT", value: (*duration)(&w.Timeout),
			usage: "deadline of one call of the receiver"},
		{section: SectionNotifications, name: "webhook-concurrency", env: "ORDERPROJECTOR_WEBHOOK_CONCURRENCY", value: (*integer)(&w.Concurrency),
			usage: "calls of the receiver at the same time"},
	}
}

func (v *validation) loyalty() { v.ownGroup("loyalty-group", v.config.Loyalty.Group) }

// ownGroup refuses a group that another consumer has: each would take the other's progress for its own.
func (v *validation) ownGroup(name, group string) {
	if group == "" {
		v.fail(name, "", "is empty", "")
		return
	}
	for _, other := range [][2]string{
		{"group", v.config.Kafka.Group}, {"loyalty-group", v.config.Loyalty.Group}, {"notifications-group", v.config.Notifications.Group},
	} {
		if other[0] != name && other[1] == group {
			v.fail(name, group, "is "+other[0]+" too", "each consumer needs a consumer group of its own")
		}
	}
}

func (v *validation) notifications() {
	n := v.config.Notifications
	v.ownGroup("notifications-group", n.Group)
	w := n.Webhook
	v.timeout("webhook-timeout", w.Timeout, 100*time.Millisecond, 5*time.Minute)
	v.count("webhook-concurrency", w.Concurrency, 1, 256)
	v.httpURL("webhook-url", w.URL)
	if w.StatusURL != "" && strings.Count(w.StatusURL, "{key}") != 1 {
		v.fail("webhook-status-url", w.StatusURL, "does not contain {key} once", "such as https://receiver.example/notifications/{key}")
	} else {
		v.httpURL("webhook-status-url", strings.ReplaceAll(w.StatusURL, "{key}", "key"))
	}
}

func (v *validation) httpURL(name, value string) {
	if value == "" {
		return
	}
	switch u, err := url.Parse(value); {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		v.fail(name, "", "is not an http or https URL", "")
	case u.User != nil:
		v.fail(name, "", "contains a user or password", "URLs are shown in logs; the receiver knows the sender by the signature")
	}
}

// webhook checks what only the consumer that calls the receiver needs.
func (v *validation) webhook() {
	w := v.config.Notifications.Webhook
	if w.URL == "" {
		v.fail("webhook-url", "", "is not set", "set ORDERPROJECTOR_WEBHOOK_URL or --webhook-url, such as https://receiver.example/notifications")
	}
	if w.Secret.IsZero() {
		v.fail("webhook-secret", "", "is not set", "set ORDERPROJECTOR_WEBHOOK_SECRET or ORDERPROJECTOR_WEBHOOK_SECRET_FILE; the receiver verifies the signature with it")
	}
}

// clear reports whether messages, and what they say of customers, cross a network in clear text.
func (w Webhook) clear() bool {
	for _, text := range []string{w.URL, w.StatusURL} {
		if u, err := url.Parse(text); err == nil && u.Scheme == "http" && !local(u.Hostname()) {
			return true
		}
	}
	return false
}

// named reports whether a section is asked for by its name, not only with all others.
func named(sections []Section, section Section) bool { return slices.Contains(sections, section) }
