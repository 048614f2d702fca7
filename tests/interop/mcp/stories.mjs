// What a person with an official MCP client would try on a Nuncio server: stories.py, for the SDKs in TypeScript.
//
// A program says how its SDK does each thing (`connect` gives an object with the methods used below) and hands itself
// to `run`, which tells the stories, prints a line for each, and counts.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

const TRAVEL = 'travel_agent';
const RESEARCH = 'research_agent';
const LONG_RUNNING = 'long_running_agent';
const INVALID_PARAMS = -32602;
const LONGEST_STORY = 60_000;

/** An error that the server answered with, as JSON-RPC has it. */
export class ServerError extends Error {
    constructor(code, message) {
        super(`${code}: ${message}`);
        this.code = code;
    }
}

/** What a log line says: its text, or its data as JSON. */
export const words = data => (typeof data === 'string' ? data : JSON.stringify(data));

const range = (first, last) => Array.from({ length: last - first + 1 }, (_, n) => first + n);
// A question in between makes two requests of one call; the second may say again where it stands.
const withoutRepeats = values => values.filter((value, n) => n === 0 || value !== values[n - 1]);
const contains = (result, text) => assert.ok(result.text.includes(text), `no "${text}" in ${JSON.stringify(result)}`);

// `elicit`, `sample` and `level` are what the client can do for the server; what is absent is not declared to it.
const person = able => ({ heard: [], ...able });

// The agent that says back what it is told, under either of its names.
function echoOf(tools) {
    const [name] = ['echo', 'echo_agent'].filter(name => name in tools);
    assert.ok(name, Object.keys(tools).join());
    return name;
}

// Log lines come beside the result, so the last may come after it.
async function heard(person, count) {
    for (let wait = 0; person.heard.length < count && wait < 500; wait++) await sleep(10);
    return person.heard.map(([, text]) => /^Processing step (\d+)/.exec(text)?.[1]).filter(Boolean).map(Number);
}

async function travels(using, able) {
    const seen = [];
    const result = await using(person(able), client =>
        client.call(TRAVEL, { destination: 'Lisbon' }, ({ progress }) => seen.push(progress))
    );
    return { result, progress: withoutRepeats(seen) };
}

const stories = {
    async meets_the_server(using, revision) {
        await using(person(), client => {
            assert.equal(client.version, revision);
            assert.ok(client.server, 'the server did not say who it is');
        });
    },

    async finds_the_agents(using) {
        await using(person(), async client => {
            const tools = await client.tools();
            assert.ok('text' in tools[echoOf(tools)].properties);
            assert.ok('destination' in tools[TRAVEL].properties);
            assert.ok('topic' in tools[RESEARCH].properties);
            assert.ok(LONG_RUNNING in tools);
        });
    },

    async hears_its_echo(using) {
        await using(person(), async client => {
            const result = await client.call(echoOf(await client.tools()), { text: 'Hello? äöü 😀' });
            assert.ok(!result.failed);
            contains(result, 'Hello? äöü 😀');
        });
    },

    async books_after_a_yes(using) {
        const asked = [];
        const elicit = (question, schema) => {
            asked.push({ question, schema });
            return { action: 'accept', content: { confirm: true, notes: 'a window seat' } };
        };
        const { result, progress } = await travels(using, { elicit });
        assert.equal(asked.length, 1);
        assert.match(asked[0].question, /\$1200.*Lisbon/);
        assert.equal(asked[0].schema.properties.confirm.type, 'boolean');
        contains(result, 'Trip to Lisbon booked for $1200. Reference: TRIP-');
        assert.deepEqual(progress, [0, 25, 50, 75, 100]);
    },

    async books_nothing_after_a_no(using) {
        const { result, progress } = await travels(using, { elicit: () => ({ action: 'decline' }) });
        contains(result, 'Not booked: the offer for Lisbon was declined.');
        assert.deepEqual(progress, [0, 25, 50, 100]);
    },

    async books_nothing_when_it_is_not_confirmed(using) {
        const elicit = () => ({ action: 'accept', content: { confirm: false } });
        contains((await travels(using, { elicit })).result, 'Not booked: you did not confirm');
    },

    async books_nothing_when_nobody_can_be_asked(using) {
        const { result, progress } = await travels(using, {});
        contains(result, 'Price quoted, not booked');
        assert.deepEqual(progress, [0, 25, 50, 100]);
    },

    async writes_with_the_callers_model(using) {
        const asked = [];
        const sample = prompt => {
            asked.push(prompt);
            return 'Bees are busy.';
        };
        const result = await using(person({ sample }), client => client.call(RESEARCH, { topic: 'bees' }));
        assert.equal(asked.length, 1);
        assert.match(asked[0], /bees/);
        contains(result, 'Bees are busy.');
        contains(result, 'The summary was written by your model.');
    },

    async writes_itself_where_there_is_no_model(using) {
        const result = await using(person(), client => client.call(RESEARCH, { topic: 'bees' }));
        contains(result, 'there was no model to ask');
    },

    async hears_every_step(using) {
        const listener = person({ level: 'info' });
        const seen = [];
        await using(listener, async client => {
            const result = await client.call(LONG_RUNNING, {}, ({ progress }) => seen.push(progress));
            contains(result, 'All 50 steps are done.');
            assert.deepEqual(await heard(listener, 50), range(1, 50));
        });
        assert.equal(listener.heard.filter(([level]) => level === 'warning').length, 5);
        assert.deepEqual(withoutRepeats(seen), range(1, 50));
    },

    async hears_warnings_alone(using) {
        const listener = person({ level: 'warning' });
        await using(listener, async client => {
            await client.call(LONG_RUNNING, {});
            assert.deepEqual(await heard(listener, 5), [10, 20, 30, 40, 50]);
        });
        assert.equal(listener.heard.length, 5);
    },

    async lists_resources_and_templates(using) {
        await using(person(), async client => {
            assert.ok((await client.resources()).every(Boolean));
            assert.ok((await client.templates()).every(template => template.includes('{')));
        });
    },

    async pings(using) {
        await using(person(), client => client.ping());
    },

    async cancels_a_call_and_goes_on(using) {
        await using(person(), async client => {
            const echo = echoOf(await client.tools());
            const cancel = new AbortController();
            const seen = [];
            const onprogress = ({ progress }) => {
                seen.push(progress);
                cancel.abort('The person changed their mind.');
            };
            await assert.rejects(client.call(LONG_RUNNING, {}, onprogress, cancel.signal));
            contains(await client.call(echo, { text: 'still here' }), 'still here');
            assert.ok(seen.length > 0 && !seen.includes(50), seen.join());
        });
    },

    async an_unknown_tool_is_an_error(using) {
        await using(person(), async client => {
            const code = await client.call('no_such_agent', {}).then(JSON.stringify, error => error.code);
            assert.equal(code, INVALID_PARAMS);
        });
    }
};

/** Tells the stories for every mode of connecting, given as name: [connect, the revision to arrive at]. */
export async function run(name, modes) {
    const [url, only = ''] = process.argv.slice(2);
    if (!url) {
        console.error('usage: node PROGRAM URL [STORY]');
        process.exit(2);
    }
    const count = { passed: 0, failed: 0 };
    for (const [mode, [connect, revision]] of Object.entries(modes)) {
        const using = async (person, act) => {
            const client = await connect(url, person);
            try {
                return await act(client);
            } finally {
                await client.close();
            }
        };
        for (const [story, tell] of Object.entries(stories)) {
            // 2026-07-28 has no ping.
            if (!story.includes(only) || (story === 'pings' && revision >= '2026-07-28')) continue;
            const late = sleep(LONGEST_STORY, undefined, { ref: false }).then(() => assert.fail('it takes too long'));
            try {
                await Promise.race([tell(using, revision), late]);
                count.passed++;
                console.log(`ok ${name}/${mode}/${story}`);
            } catch (error) {
                count.failed++;
                const why = String(error?.message ?? error).replace(/\s+/g, ' ').slice(0, 500);
                console.log(`FAIL ${name}/${mode}/${story}: ${why}`);
                if (only) console.log(error);
            }
        }
    }
    console.log(`${count.passed} passed, ${count.failed} failed`);
    process.exit(count.failed ? 1 : 0);
}
