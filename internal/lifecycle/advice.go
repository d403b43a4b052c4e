package lifecycle

import "fmt"

// Advised returns a check that adds advice for an operator to the errors of the given check.
func Advised(check func() error, advice string) func() error {
	return func() error {
		if err := check(); err != nil {
			return fmt.Errorf("%w: %s", err, advice)
		}
		return nil
	}
}
