import { type ServerContext, SdkError, SdkErrorCode } from '@modelcontextprotocol/server';
import { expect, test } from 'vitest';
import { Confirmation } from '../../src/mcp/confirmation.ts';

const asking = { tool: 'submit_video', key: 'one', request: 'hash', amount: '5' };

test.each([
  [new SdkError(SdkErrorCode.CapabilityNotSupported, 'no'), 'This client cannot ask the user to confirm.'],
  [new SdkError(SdkErrorCode.RequestTimeout, 'late'), 'The user did not answer within 45 s.'],
  [new Error('Method not found'), 'The client could not ask the user.'],
])(
  'the refusal of a payment after the error %s explains why the user did not confirm',
  async (error, text) => {
    const context = { mcpReq: { elicitInput: () => Promise.reject(error) } } as unknown as ServerContext;
    const refused = await new Confirmation('3', '/clips').ask(asking, 'This may cost 5.', ['mgw'], context);
    expect(refused).toMatchObject({ ok: false, charged: 'no', retry: 'safe', command: ['mgw'] });
    expect(refused).toHaveProperty('error.message', expect.stringContaining(text));
  },
);
