import {
  CLIENT_CAPABILITIES_META_KEY,
  createRequestStateCodec,
  inputRequired,
  inputResponse,
  type InputRequiredResult,
  type RequestStateCodec,
  SdkError,
  SdkErrorCode,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { randomBytes, randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import * as z from 'zod';
import { printableLine } from '../printable.ts';
import type { Answer } from './result.ts';

const questionSchema = z.object({
  tool: z.string(),
  key: z.string(),
  /** A hash of the request. */
  request: z.string(),
  /** The maximum cost, as an exact decimal. */
  amount: z.string(),
});

/** A payment that the user is asked to confirm. The answer applies only to this payment. */
type PaymentQuestion = z.infer<typeof questionSchema>;

/** The signed state that a client returns with the user's answer. */
const stateSchema = questionSchema.extend({ id: z.string() });

// The part of a client's request that declares that the client can show its user a form. A client that declares no
// mode can.
const capabilitiesSchema = z.looseObject({
  [CLIENT_CAPABILITIES_META_KEY]: z.looseObject({
    elicitation: z.looseObject({}).refine((modes) => 'form' in modes || !('url' in modes)),
  }),
});

/** The time limit for the user's answer, in seconds. It is shorter than a client's timeout. */
const maxAnswerSeconds = 45;

const cannotAskText = 'This client cannot ask the user to confirm.';

const confirmationForm = {
  type: 'object' as const,
  properties: { pay: { type: 'boolean' as const, title: 'Pay for it' } },
  required: ['pay'],
};

/** Asks the user, through the client, to confirm a payment that exceeds an amount (design 16). */
export class Confirmation {
  /** The amount above which the user is asked, as an exact decimal. */
  readonly over: string;
  readonly #codec: RequestStateCodec = createRequestStateCodec({ key: randomBytes(32) });
  readonly #folder: string;
  readonly #usedStates = new Set<string>();

  /**
   * @param folder the root folder, in which the user must run the command, because a manifest may contain relative
   * paths
   */
  constructor(over: string, folder: string) {
    this.over = over;
    this.#folder = folder;
  }

  /** Verifies the state that a client returns. */
  readonly verify: RequestStateCodec['verify'] = (state, context) => this.#codec.verify(state, context);

  /**
   * Returns undefined if the user agrees, or else the answer to give instead of the payment.
   * @param command the command line that the user can run to make the payment
   */
  async ask(
    question: PaymentQuestion,
    message: string,
    command: string[],
    context: ServerContext,
  ): Promise<Answer | InputRequiredResult | undefined> {
    // In protocol revisions without requests from servers, each client request declares the client's capabilities.
    if (context.mcpReq.envelope !== undefined) return this.#askAndReturn(question, message, command, context);
    try {
      // Deprecated because later revisions lack it. Unlike `send`, it refuses a client that cannot show a form.
      // eslint-disable-next-line @typescript-eslint/no-deprecated
      const answer = await context.mcpReq.elicitInput(
        { mode: 'form', message: `${message} Pay for it?`, requestedSchema: confirmationForm },
        { timeout: maxAnswerSeconds * 1000 },
      );
      if (answer.action === 'accept' && answer.content?.['pay'] === true) return undefined;
    } catch (error) {
      return this.#refusal(command, `${message} ${explainNoAnswer(error)}`);
    }
    return this.#refusal(command, `${message} The user declined.`);
  }

  // The client asks its user, and repeats the call with the user's answer.
  async #askAndReturn(
    question: PaymentQuestion,
    message: string,
    command: string[],
    context: ServerContext,
  ): Promise<Answer | InputRequiredResult | undefined> {
    const { mcpReq } = context;
    const answer = inputResponse(mcpReq.inputResponses, 'confirm');
    const state = stateSchema.safeParse(mcpReq.requestState());
    if (
      answer.kind === 'elicit' &&
      state.success &&
      isDeepStrictEqual(questionSchema.parse(state.data), question) &&
      !this.#usedStates.has(state.data.id)
    ) {
      this.#usedStates.add(state.data.id);
      if (answer.action === 'accept' && answer.content?.['pay'] === true) return undefined;
      return this.#refusal(command, `${message} The user declined.`);
    }
    const capabilities = capabilitiesSchema.safeParse(mcpReq.envelope);
    if (!capabilities.success) return this.#refusal(command, `${message} ${cannotAskText}`);
    const requestState = await this.#codec.mint({ id: randomUUID(), ...question }, context);
    return inputRequired({
      inputRequests: {
        confirm: inputRequired.elicit({
          message: `${message} Pay for it?`,
          requestedSchema: confirmationForm,
        }),
      },
      requestState,
    });
  }

  #refusal(command: string[], message: string): Answer {
    const text = `${message} Nothing was sent. The user can run the command in ${printableLine(this.#folder, 200)}.`;
    return {
      ok: false,
      charged: 'no',
      retry: 'safe',
      next: null,
      command,
      error: { code: 'budget', message: text, exit_code: 12 },
    };
  }
}

function explainNoAnswer(error: unknown): string {
  const code = error instanceof SdkError ? error.code : undefined;
  if (code === SdkErrorCode.CapabilityNotSupported) return cannotAskText;
  return code === SdkErrorCode.RequestTimeout
    ? `The user did not answer within ${maxAnswerSeconds} s. To ask again, repeat the call.`
    : 'The client could not ask the user.';
}
