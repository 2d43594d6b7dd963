package cli

import "errors"

// hintFor finds what to tell the operator: an error's own hint.
func hintFor(err error) string {
	var own *Error
	if errors.As(err, &own) {
		return own.Hint
	}
	return ""
}
