// Package outbox is for order services: it stores an event in the transaction
// that makes the change, so that one is never without the other. A relay
// publishes what is stored (orderprojector run relay).
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		// The guarded UPDATE locks the order's row; its version is the event's.
//		tag, err := tx.Exec(ctx, `UPDATE shop.orders SET state = 'paid', version = version + 1
//			WHERE order_id = $1 AND version = $2 AND state = 'pending'`, id, version)
//		if err != nil {
//			return err
//		}
//		if tag.RowsAffected() == 0 {
//			return errSomebodyWasFaster
//		}
//		m, err := outbox.NewMessage(id, version+1, time.Now(), order.Paid{PaymentID: payment, Amount: total})
//		if err != nil {
//			return err
//		}
//		return outbox.Append(ctx, tx, m)
//	})
//
// Append belongs behind the statement that locks the order's row. Then the
// messages of an order become visible in the order of their versions, and the
// relay publishes them in that order: at least once, each with a stable event ID.
//
// The tables come with orderprojector's migrations. A service whose database
// orderprojector does not migrate makes them with EnsureSchema.
package outbox
