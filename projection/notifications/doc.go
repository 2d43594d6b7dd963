// Package notifications is the consumer that tells a receiver, over a webhook, of each payment: once per OrderPaid event.
//
// The consumer only writes a row, in the transaction that notes the event as consumed, so that no
// offset ever waits for the receiver. A Sender claims rows and calls the receiver.
//
// What is in the state sending was committed before the receiver is called. So whoever finds it there later, after a
// crash, a timeout or a cut connection, knows that the receiver may have acted: it is asked by the idempotency key before
// anything is sent again. And because the database may lose its last commits, and with them what was sent, a row that this
// process has not just written itself is asked for before it is sent for the first time, too.
package notifications
