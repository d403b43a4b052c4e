package lifecycle

import "fmt"

// Advised returns a check whose error also gives an operator advice.
func Advised(check func() error, advice string) func() error {
	return func() error {
		if err := check(); err != nil {
			return fmt.Errorf("%w: %s", err, advice)
		}
		return nil
	}
}
