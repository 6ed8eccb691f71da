/** What the sandbox answers to an input. */
export interface Answer {
  model: string;
  status: 'completed' | 'incomplete' | 'failed';
  text: string;
  /** True where `text` is a refusal to answer. */
  refused: boolean;
  usage: { input_tokens: number; output_tokens: number; total_tokens: number };
}

/** An answer that says what was asked, in at most `most` words; words in the input ask for other endings. */
export function answerTo(model: string, input: string, most: number): Answer {
  const refused = input.includes('[response-refuses]');
  const failed = input.includes('[response-fails]');
  const all = refused ? 'I cannot help with that.' : `The sandbox was asked: ${input.slice(0, 2000)}`;
  const words = all.split(/(?<=\s)/);
  const text = failed ? '' : words.slice(0, most).join('').trimEnd();
  const usage = { input_tokens: countWords(input), output_tokens: countWords(text) };
  return {
    model,
    status: failed ? 'failed' : words.length > most ? 'incomplete' : 'completed',
    text,
    refused,
    usage: { ...usage, total_tokens: usage.input_tokens + usage.output_tokens },
  };
}

/** A response as the endpoint shows it when it has ended. */
export function responseObject(answer: Answer, id: string, createdAt: number): Record<string, unknown> {
  const { status, usage } = answer;
  return {
    ...responseHead(answer, id, createdAt),
    status,
    error: status === 'failed' ? { code: 'server_error', message: 'The model failed.' } : null,
    incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
    output: status === 'failed' ? [] : [messageItem(answer, id, [contentPart(answer, answer.text)])],
    usage: {
      ...usage,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens_details: { reasoning_tokens: 0 },
    },
  };
}

/** A response while it is being made. */
export function responseHead({ model }: Answer, id: string, createdAt: number): Record<string, unknown> {
  return {
    id: `resp_${id}`,
    object: 'response',
    created_at: createdAt,
    status: 'in_progress',
    error: null,
    incomplete_details: null,
    instructions: null,
    metadata: {},
    model,
    output: [],
    parallel_tool_calls: true,
    temperature: 1,
    tool_choice: 'auto',
    tools: [],
    top_p: 1,
    usage: null,
  };
}

/** The one item of the output; without content it is still being made. */
export function messageItem({ status }: Answer, id: string, content: object[]): Record<string, unknown> {
  const state = content.length === 0 ? 'in_progress' : status;
  return { id: `msg_${id}`, type: 'message', role: 'assistant', status: state, content };
}

/** The one part of the message. */
export function contentPart({ refused }: Answer, text: string): Record<string, unknown> {
  return refused
    ? { type: 'refusal', refusal: text }
    : { type: 'output_text', text, annotations: [], logprobs: [] };
}

function countWords(text: string): number {
  return text.split(/\s+/).filter((word) => word !== '').length;
}
