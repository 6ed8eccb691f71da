import { expect, test } from 'vitest';
import { clients, connect } from './client.ts';
import { gateway, userOf, video } from './gateway.ts';

// The SDK sends -32602 for an unknown resource in every revision.
const notFound = -32602;

test.each(clients)(
  "the client %s reads a job's resource by a REF, which may be percent-encoded",
  async (kind) => {
    const server = await gateway();
    const agent = await connect(kind, await userOf(server.url), ['mcp', '--budget', '100']);
    const { job } = await agent.call('submit_video', { key: 'k1', ...video });
    for (const ref of [job?.id, '@k1', '%40k1'])
      expect(await agent.read(`mgw://jobs/${ref}`)).toMatchObject({ ok: true, job: { id: job?.id } });
    for (const [ref, message] of [
      ['nope', 'No such job: nope.'],
      ['@nope', 'No such job: @nope.'],
      ['%zz', 'mgw://jobs/%zz'],
    ]) {
      const uri = `mgw://jobs/${ref}`;
      const text = expect.stringContaining(message ?? '') as string;
      await expect(agent.read(uri)).rejects.toMatchObject({ code: notFound, message: text, data: { uri } });
    }
  },
);
