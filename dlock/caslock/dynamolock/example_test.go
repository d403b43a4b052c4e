package dynamolock_test

import (
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/caslock/dynamolock"
)

// A program takes its client from dynamodb.NewFromConfig, with the configuration that
// config.LoadDefaultConfig finds.
func ExampleNew() {
	client := dynamodb.New(dynamodb.Options{Region: "eu-central-1"})
	session, err := dlock.NewSession(dynamolock.New(client, "tickslot", dynamolock.Options{}), dlock.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = session // timers and leaders take their leases from it
}
