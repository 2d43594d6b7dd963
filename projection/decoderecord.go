package projection

// DecodeRecord reads the event out of a record. A panic of the decoder is a verdict on the record,
// like an error: invalid is not nil then.
func DecodeRecord(decoder Decoder, rec *Record) (env Envelope, invalid *DecodeError) {
	return decode(decoder, rec)
}
