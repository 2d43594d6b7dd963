package projection

// Shrink makes bounds small for a simulation, and returns what makes them as large as before: the entries that a row keeps, and the parked
// events of one transaction.
func Shrink(ledger, events int) (restore func()) {
	ledgerBefore, eventsBefore := ledgerInRow, turnEvents
	ledgerInRow, turnEvents = ledger, events
	return func() { ledgerInRow, turnEvents = ledgerBefore, eventsBefore }
}

// EntriesInRow is how many entries a row keeps at most, as Shrink has it.
func EntriesInRow() int { return ledgerInRow }
