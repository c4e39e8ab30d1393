"""What a server refuses is said with the command, in whatever words the server says it."""

import pytest
from headgate.origin.operations.call import Call
from headgate.origin.redis_origin.errors import explain
from headgate.origin.redis_origin.scripts import Scripts
from redis.exceptions import NoPermissionError, ResponseError

CALL = Scripts().of(Call.lua)
LINE = next(number for number, line in enumerate(CALL.text.decode().split("\n"), 1) if "('HSET'" in line)
SHA = CALL.sha.decode()


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(
            NoPermissionError("this user has no permissions to run the 'hset' command or its subcommand"),
            id="a command, Redis 6.2",
        ),
        pytest.param(NoPermissionError("User u has no permissions to run the 'hset' command"), id="a command"),
        pytest.param(
            ResponseError(
                f"Error running script (call to f_{SHA}): @user_script:{LINE}: @user_script: {LINE}: -NOPERM this user "
                "has no permissions to run this command or subcommand"
            ),
            id="in a script, Redis 6.2",
        ),
        pytest.param(
            ResponseError(
                "The user executing the script can't run this command or subcommand "
                f"script: {SHA}, on @user_script:{LINE}."
            ),
            id="in a script, Redis 7.0",
        ),
        pytest.param(
            ResponseError(
                "ACL failure in script: User u has no permissions to run the 'hset' command "
                f"script: {SHA}, on @user_script:{LINE}."
            ),
            id="in a script, Redis 7.2 and 8, Valkey",
        ),
    ],
)
def test_a_command_that_the_user_may_not_run_is_named(error: Exception) -> None:
    assert explain(error) == "the user may not do this (NOPERM): HSET"
