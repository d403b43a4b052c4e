package azurelock_test

import (
	"fmt"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/caslock/azurelock"
)

// The table is in the connection string's account. Without a key, aztables.NewClient takes a
// credential of azidentity.
func ExampleNew() {
	tables, err := aztables.NewServiceClientFromConnectionString(os.Getenv("AZURE_STORAGE_CONNECTION_STRING"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	store := azurelock.New(tables.NewClient("tickslot"), azurelock.Options{})
	session, err := dlock.NewSession(store, dlock.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = session // timers and leaders take their leases from it
}
